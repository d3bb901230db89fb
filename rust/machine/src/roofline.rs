//! What a SIP computes at.

use crate::rate::Ps;

/// The rates of a SIP, and what starting a kernel takes. All but the start of a kernel may be infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Arithmetic operations per nanosecond in types of two bytes.
    pub operations_per_ns: f64,
    /// Bytes per nanosecond of the memory.
    pub bytes_per_ns: f64,
    /// Bytes per nanosecond of the link to the host.
    pub host_bytes_per_ns: f64,
    /// Starting a kernel.
    pub launch: Ps,
    /// Peak in f64 as a share of the peak.
    pub f64_share: f64,
    /// Peak in f32 as a share of the peak.
    pub f32_share: f64,
    /// Peak in TF32 as a share of the peak.
    pub tf32_share: f64,
    /// Peak in types of one byte as a share of the peak.
    pub byte_share: f64,
}

impl Default for Roofline {
    /// Costs nothing.
    fn default() -> Self {
        let free = f64::INFINITY;
        let [f64_share, f32_share, tf32_share, byte_share] = [0.0625, 0.0625, 0.5, 2.0];
        Self {
            operations_per_ns: free,
            bytes_per_ns: free,
            host_bytes_per_ns: free,
            launch: 0,
            f64_share,
            f32_share,
            tf32_share,
            byte_share,
        }
    }
}
