"""Products of arrays as strided, batched products of matrices by BLAS."""
