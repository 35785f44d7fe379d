"""guarantees"""
