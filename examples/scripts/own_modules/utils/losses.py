import torch


def contrast(left, right, temperature=0.1):
    scores = left @ right.T / temperature
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(left), device=left.device))
