"""MPS: one supervised control daemon per GPU, and the compute mode that keeps others away."""
