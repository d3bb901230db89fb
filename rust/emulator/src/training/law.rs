//! What a kernel takes by its class and dimensions.

use super::kernel::bare;
use ahbm_machine::{Compute, Roofline};
use ahbm_workload::Kernel;

/// How long a kernel takes, in ps.
pub(super) fn ps(roofline: &Roofline, compute: &Compute, kernel: &Kernel) -> f64 {
    bare(roofline, kernel) + compute.kernel.start_ns * 1000.0
}
