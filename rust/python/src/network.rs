//! Networks between SIPs by the names topology files use.

use crate::operand;
use ahbm_findings::Diagnostic;
use ahbm_machine::SipNetwork;

/// A network by name. Extents of 0 are worked out from the number of SIPs.
pub(crate) fn by_name(name: &str, sips: u32, (w, h, d): (u32, u32, u32)) -> Result<SipNetwork, Diagnostic> {
    const NAMES: [&str; 10] = [
        "ring_1d",
        "torus_2d",
        "mesh_2d_no_wrap",
        "torus_3d",
        "mesh_3d",
        "hypercube",
        "fully_connected",
        "switch",
        "nodes",
        "custom",
    ];
    let grid = |dims: u32, wrap: bool| {
        let side = (sips as f64).powf(1.0 / f64::from(dims)).round() as u32;
        let (w, h, d) = match ((w, h, d), dims) {
            ((0, 0, 0), 2) if side.checked_pow(2) == Some(sips) => (side, side, 1),
            ((0, 0, 0), 3) if side.checked_pow(3) == Some(sips) => (side, side, side),
            ((w, h, 0), 2) => (w, h, 1),
            (given, _) => given,
        };
        if u64::from(w) * u64::from(h) * u64::from(d) == u64::from(sips) {
            return Ok(SipNetwork::Grid { w, h, d, wrap });
        }
        Err(Diagnostic::new("AHBM-T203", format!("{sips} SIPs do not fill a {name} of {w} x {h} x {d}"))
            .hint("give w and h (and d) whose product is the number of SIPs"))
    };
    Ok(match name {
        "ring_1d" => SipNetwork::Ring,
        "torus_2d" => grid(2, true)?,
        "mesh_2d_no_wrap" => grid(2, false)?,
        "torus_3d" => grid(3, true)?,
        "mesh_3d" => grid(3, false)?,
        "hypercube" if sips.is_power_of_two() => SipNetwork::Hypercube { dims: sips.trailing_zeros() },
        "hypercube" => {
            return Err(
                Diagnostic::new("AHBM-T203", format!("{sips} SIPs do not fill a hypercube")).hint("use a power of two")
            );
        }
        "fully_connected" => SipNetwork::FullyConnected,
        "switch" => SipNetwork::Switch,
        "nodes" | "custom" => SipNetwork::Custom,
        _ => return Err(*operand::unknown("AHBM-T204", "topology", name, &NAMES)),
    })
}
