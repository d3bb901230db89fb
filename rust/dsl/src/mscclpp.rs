//! The MSCCL++ DSL.
