"""Faster implementations of methods of modules, which replace the plain equations at run time.

attached/NAME.py belongs to gt_models/NAME.py, gt_models/released/NAME.py or gt_models/layers/NAME.py and is imported at
the first call of a method there that is marked as `@accelerated`.
"""
