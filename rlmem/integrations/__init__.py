"""rlmem's memories in other libraries; each module needs its library (an optional extra)."""
