"""What code asks of torch beside operators: `torch.cuda`, devices of tensors, files, threads."""
