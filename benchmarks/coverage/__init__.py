"""torch's own tables of operators, modules and optimizers, simulated and compared with a real run on the CPU.

- `tables`: the rows of `op_db`, `module_db` and `optim_db` as programs that run on either side
- `places`: a sample's tensors, copied on the host or onto the simulated device
- `host`, `simulated`: one run, and what is seen of it (metadata of tensors, peak bytes, storages uncounted)
- `shared_code`: which operators run the same C++ on the CPU and on CUDA, so that their peaks must be equal
- `compare`: what differs, and the outcome of a row
- `apart`: a row in a process group of its own with a time limit
- `page`: docs/coverage.md
"""
