"""Stand-ins with the memory of what is advised: an 8-bit optimizer, LoRA, a chunked loss, offloading."""
