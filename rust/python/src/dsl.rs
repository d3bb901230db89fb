//! Recorders of the languages that `ahbm.dsl` serves.

pub(crate) mod msccl;
pub(crate) mod msccl_arguments;
pub(crate) mod msccl_ref;
