"""The experiment: plan, inject, observe, judge, report."""
