"""The wire, described once: pydantic models of everything that clients read and training processes write.

`served` is the table of resources; `v1alpha1`, `meta_v1`, `discovery_v2` and `version` are what is served;
`trainer_status` is what is pushed and `training_document` what a training process writes to its file.
From these come the OpenAPI documents, the JSON Schema in `visibility_api/openapi/`, and the typed routes.

Where bytes are encoded or decoded on a hot path, or come from strangers, msgspec does it. Which and why:

- `kubeapi/v1alpha1.py` encodes each document when it changes. Its Structs are made from the models
  (`structs.struct_of`), so there is no second list of fields. pydantic takes 3.3 times the CPU.
- `reports/document.py` and `pushing/payload.py` decode what pods write and push. What does not fit is
  rounded, clamped and cut; a model only accepts or refuses. For what fits pydantic is as fast.
- `kube/` decodes objects and watch events of kube-apiserver, and only the few fields that are used.
- `errors.py` encodes a Status: refusing a request must cost less than serving it.

Tests hold each of these to its model (`tests/unit/test_models_*.py`). Decision 0008 has the figures.
"""
