"""Native code for element-wise and reducing programs: a loop IR, its printers, and the lowering to it."""
