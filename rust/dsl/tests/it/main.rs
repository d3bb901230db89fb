//! Tests of the public interface.

mod mscclpp;
