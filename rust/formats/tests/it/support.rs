//! What several tests build their programs and files from.

pub(crate) mod execution;
pub(crate) mod kineto;
pub(crate) mod msccl;
pub(crate) mod nvls;
pub(crate) mod plans;
pub(crate) mod ring;
