"""A GAN in the dialect of PyTorch 0.3: `Tensor` is a type of the card, and everything is a Variable.

memlens predict examples/scripts/legacy_gan.py --gpu T4
"""

import numpy as np
import torch
from torch import nn
from torch.autograd import Variable

cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if cuda else torch.LongTensor
NOISE, CLASSES, PIXELS, BATCH = 64, 10, 32 * 32, 64

embedding = nn.Embedding(CLASSES, CLASSES)
generator = nn.Sequential(
    nn.Linear(NOISE + CLASSES, 512), nn.LeakyReLU(0.2), nn.Linear(512, PIXELS), nn.Tanh()
)
critic = nn.Sequential(nn.Linear(PIXELS, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1), nn.Sigmoid())
adversarial = nn.BCELoss()
if cuda:
    embedding.cuda(), generator.cuda(), critic.cuda(), adversarial.cuda()
for_generator = torch.optim.Adam(
    [*generator.parameters(), *embedding.parameters()], lr=2e-4, betas=(0.5, 0.999)
)
for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))

for _ in range(100):
    pictures = torch.from_numpy(np.random.uniform(-1, 1, (BATCH, PIXELS)))
    real = Variable(pictures.type(Tensor))
    valid = Variable(Tensor(BATCH, 1).fill_(1.0), requires_grad=False)
    fake = Variable(real.data.new(BATCH, 1).zero_(), requires_grad=False)

    for_generator.zero_grad()
    noise = Variable(Tensor(np.random.normal(0, 1, (BATCH, NOISE))))
    kinds = Variable(LongTensor(np.random.randint(0, CLASSES, BATCH)))
    made = generator(torch.cat((noise, embedding(kinds)), 1))
    loss = adversarial(critic(made), valid)
    loss.backward()
    for_generator.step()

    for_critic.zero_grad()
    loss = (adversarial(critic(real), valid) + adversarial(critic(made.detach()), fake)) / 2
    loss.backward()
    for_critic.step()
    assert isinstance(made.data, Tensor)
