"""Measurements beside a peer in the same run; figures are ratios, never asserted in tests."""
