"""Matrix products and factorisations on CUDA: what cuBLAS, cuSOLVER and bitsandbytes copy and work in."""
