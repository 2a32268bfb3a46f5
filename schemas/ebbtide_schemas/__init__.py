"""ATDP/1, the trajectory protocol: types, canonical form, hash chain, JSON Schemas and conformance vectors."""
