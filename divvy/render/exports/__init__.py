"""What other programs are given: Kueue, the GPU Operator, Pulumi, autoscalers."""
