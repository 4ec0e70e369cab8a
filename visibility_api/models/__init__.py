"""What clients read, described once, in pydantic models.

`served` is the table of resources; `v1alpha1`, `subresources` and `meta_v1` are what is served. The OpenAPI
documents in `openapi/` come from these. What training processes write and push has its one
description where it is read: `reports/training_document.py` and `reports/trainer_status.py`.

msgspec encodes and decodes bytes on a hot path, and bytes of unknown origin:

- `kubeapi/v1alpha1.py` encodes each document when it changes. Its Structs are made from the models
  (`wire.struct_of`), so there is no second list of fields. pydantic takes 3.3 times the CPU.
- `reports/` decodes what pods write and push. What does not fit is rounded, clamped and cut; a model only
  accepts or refuses.
- `kube/` decodes objects and watch events of kube-apiserver, and only the few fields that are used.

Tests hold each of these to its model (`tests/unit/test_models_*.py`). Decision 0008 has the figures.
"""
