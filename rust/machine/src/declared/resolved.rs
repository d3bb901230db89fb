//! What the declared keys cost.

use super::Topology;
use crate::{Costs, DmaChannels, Jitter, Roofline, Tier};

impl Topology {
    /// What operations cost besides the links that they cross.
    pub(crate) fn costs(&self) -> Costs {
        let (pe, ipcq) = (&self.pe, &self.ipcq);
        let tiers = ipcq.tiers.0.iter().map(|(name, tier)| {
            let rates = (tier.bandwidth_gbs.rate, tier.bank_bandwidth_gbs.rate);
            (name.clone(), Tier { setup_ps: tier.setup_ns.0, rate: rates.0, bank_rate: rates.1 })
        });
        let launch = &self.launch;
        let [overhead, per_rank] = [launch.overhead_ns, launch.per_rank_ns].map(|ns| ns.map_or(0, |ns| ns.0));
        Costs {
            launch_ps: overhead + per_rank * u64::from(self.system.sips.count.0),
            dispatch_ps: pe.dispatch_ns.0,
            dma_setup_ps: pe.dma.setup_ns.0,
            dma_channels: pe.dma.channels.unwrap_or(DmaChannels::Any(1)),
            ipcq_send_ps: ipcq.send_ns.0,
            ipcq_recv_ps: ipcq.recv_ns.0,
            credit_overhead_ps: ipcq.credit.overhead_ns.0,
            credit_blocks_receiver: ipcq.credit.blocks_receiver,
            // An f16 has two bytes; unlimited stays unlimited.
            math_bytes_per_ns: pe.math.f16_per_ns.0.saturating_mul(2),
            gemm_macs_per_ns: pe.gemm.macs_per_ns.0,
            flit_bytes: u64::from(self.system.flit_bytes.0),
            network: self.system.network_model,
            jitter: Jitter {
                seed: u64::from(self.faults.jitter.seed.0),
                latency_ps: self.faults.jitter.latency_ns.0,
                skew_ps: self.faults.jitter.skew_ns.0,
            },
            tiers: tiers.collect(),
        }
    }

    /// What a SIP of so many PEs computes at.
    pub(crate) fn roofline(&self, pes: f64) -> Roofline {
        let pe = &self.pe;
        let macs = pe.gemm.macs_per_ns.0;
        let by_gemm = if macs == u64::MAX { f64::INFINITY } else { 2.0 * macs as f64 };
        let peak = pe.roofline.peak_tflops.map_or(by_gemm, |tflops| tflops.0 * 1000.0);
        let port = pe.hbm.pc_bandwidth_gbs.gbs() * f64::from(pe.hbm.pseudo_channels.0);
        let usual = Roofline::default();
        Roofline {
            operations_per_ns: peak * pes,
            bytes_per_ns: pe.roofline.memory_gbs.map_or(port, |gbs| gbs.0) * pes,
            host_bytes_per_ns: pe.roofline.host_gbs.map_or(32.0, |gbs| gbs.0),
            launch: pe.roofline.launch_ns.map_or(0, |ns| ns.0),
            f64_share: pe.roofline.f64_share.map_or(usual.f64_share, |share| share.0),
            f32_share: pe.roofline.f32_share.map_or(usual.f32_share, |share| share.0),
            tf32_share: pe.roofline.tf32_share.map_or(usual.tf32_share, |share| share.0),
            byte_share: pe.roofline.byte_share.map_or(usual.byte_share, |share| share.0),
        }
    }
}
