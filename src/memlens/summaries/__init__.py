"""One row per layer, with bytes that are true: what a forward makes and keeps, by module and operator."""
