"""The GPU kernels without a GPU: what compilers make of them, what they move, what that predicts, what they hold."""
