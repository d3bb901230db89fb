//! What several tests build their programs and files from.

pub(crate) mod data;
pub(crate) mod model;
pub(crate) mod ring;
pub(crate) mod transfer;
