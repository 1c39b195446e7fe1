"""A summary as text by layer, as formulas, as HTML, and in the shapes of torchsummary and torchinfo."""
