//! The machine as text: what `ahbm topology` prints.

use crate::cube_links::CubeLink;
use crate::sip_links::Reducer;
use crate::{DmaChannels, Heading, Machine, NetworkModel, Ps, Rate, SipNetwork, Ways};
use std::fmt::{self, Write};

impl Machine {
    /// Shape, PEs, links by class with bandwidth and latency, memories, costs, slot tiers.
    pub fn dump(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sfr, cube, costs) = (&self.sfr, &self.cube, &self.costs);
        writeln!(f, "machine    {:016x}", self.hash())?;
        writeln!(f, "SIPs       {}, {}", sfr.sips, network(self))?;
        writeln!(f, "cubes      {} x {} = {} per SIP", sfr.cube_w, sfr.cube_h, sfr.cubes())?;
        writeln!(f, "PEs        {} per cube, {} in all", sfr.pes, self.pes())?;
        writeln!(f, "links      {} directed", self.links())?;
        writeln!(f)?;
        writeln!(f, "{:<22} {:>10} {:>12} {:>12}", "link class", "count", "GB/s", "latency ns")?;
        let cubes = u64::from(sfr.sips) * u64::from(sfr.cubes());
        let pes = u64::from(self.pes());
        let noc = u64::from(2 * (cube.rows * (cube.cols - 1) + cube.cols * (cube.rows - 1)));
        let mesh = u64::from(sfr.sips)
            * u64::from(2 * (sfr.cube_h * (sfr.cube_w - 1) + sfr.cube_w * (sfr.cube_h - 1)) * cube.connections);
        let mut class = |name: &str, count: u64, link: CubeLink, extra: Ps| {
            let rate = cube.rate(link);
            writeln!(f, "{name:<22} {count:>10} {:>12} {:>12}", gbs(rate), ns(cube.latency_ps(link) + extra))
        };
        class("PE to NOC", pes, CubeLink::NocOut(0), 0)?;
        class("NOC to PE", pes, CubeLink::NocIn(0), 0)?;
        class("HBM read", pes, CubeLink::HbmRead(0), cube.access_ps)?;
        class("HBM write", pes, CubeLink::HbmWrite(0), cube.access_ps)?;
        class("SRAM port", 2 * cubes, CubeLink::SramRead, 0)?;
        class("NOC", noc * cubes, CubeLink::Noc((0, 0), Heading::E), cube.router_ps)?;
        class("UCIe between cubes", mesh, CubeLink::Ucie(Heading::E, 0), cube.router_ps)?;
        class("cube to/from I/O", 2 * cubes, CubeLink::IoOut, 0)?;
        let between = if matches!(sfr.network, SipNetwork::Switch) { "SIP to/from switch" } else { "SIP to SIP" };
        match uniform(self) {
            Some((rate, latency)) => {
                writeln!(f, "{between:<22} {:>10} {:>12} {:>12}", self.sips.links(), gbs(rate), ns(latency))?;
            }
            None if self.sips.links() == 0 => {}
            None => writeln!(f, "{between:<22} {:>10} {:>12} {:>12}", self.sips.links(), "various", "various")?,
        }
        if matches!(sfr.network, SipNetwork::Switch) {
            writeln!(f, "{:<22} {:>10} {:>12} {:>12}", "switch", 1, "unlimited", ns(self.sips.switch_ps))?;
        }
        for (number, reducer) in self.sips.reducers.iter().enumerate() {
            // Those of the nodes are alike.
            let alike = |other: &&Reducer| (other.sips.len(), other.rate) == (reducer.sips.len(), reducer.rate);
            if number > 0 && alike(&&self.sips.reducers[number - 1]) {
                continue;
            }
            let end = self.end_name(reducer.vertex);
            let what = format!("reducer of the {}", if end.starts_with("node") { "node" } else { &end });
            let count = self.sips.reducers[number..].iter().take_while(alike).count();
            writeln!(f, "{what:<22} {count:>10} {:>12} {:>12}", gbs(reducer.rate), 0)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "memory     HBM {} per PE, SRAM {} per cube, TCM {} per PE ({} GB/s)",
            bytes(self.memory_bytes(crate::Node::Hbm(crate::PeId(0)))),
            bytes(self.memory_bytes(crate::Node::Sram(crate::PeId(0)))),
            bytes(self.memory_bytes(crate::Node::Pe(crate::PeId(0)))),
            gbs(self.tcm_rate())
        )?;
        let model = match costs.network {
            NetworkModel::CutThrough => "cut_through",
            NetworkModel::Flit => "flit",
            NetworkModel::Analytic => "analytic",
        };
        writeln!(f, "network    {model}, flits of {} bytes", costs.flit_bytes)?;
        if costs.launch_ps > 0 {
            writeln!(f, "launch     {} ns", ns(costs.launch_ps))?;
        }
        if let Some(name) = self.protocol() {
            writeln!(f, "protocol   {name} is what all runs use")?;
        }
        writeln!(
            f,
            "costs      dispatch {} ns, DMA setup {} ns, send {} ns, recv {} ns",
            ns(costs.dispatch_ps),
            ns(costs.dma_setup_ps),
            ns(costs.ipcq_send_ps),
            ns(costs.ipcq_recv_ps)
        )?;
        writeln!(
            f,
            "credit     overhead {} ns, {}",
            ns(costs.credit_overhead_ps),
            if costs.credit_blocks_receiver { "ends the receive" } else { "after the receive" }
        )?;
        writeln!(
            f,
            "engines    math {} bytes/ns, matrix {} MAC/ns",
            per_ns(costs.math_bytes_per_ns),
            per_ns(costs.gemm_macs_per_ns)
        )?;
        match costs.dma_channels {
            DmaChannels::Any(1) => writeln!(f, "DMA        one write and one read channel per PE")?,
            DmaChannels::Any(count) => writeln!(f, "DMA        {count} write and {count} read channels per PE")?,
            DmaChannels::PerLink => writeln!(f, "DMA        a write and a read channel per PE and link between SIPs")?,
        }
        for text in self.assumed() {
            writeln!(f, "assumed    {text}")?;
        }
        if let Some(name) = self.sheet().0 {
            let at = self.roofline();
            let (peak, memory) = (at.operations_per_ns / 1000.0, at.bytes_per_ns);
            writeln!(f, "computing  {peak:.1} TFLOP/s, {memory:.0} GB/s: {name}, by its data sheet")?;
        } else if self.computes().is_err() {
            writeln!(f, "computing  unknown: pe.roofline.peak_tflops and memory_gbs would say it")?;
        }
        if let Some(law) = self.compute() {
            let (units, mhz, mib) = (law.units, law.clock_mhz, law.l2_mib);
            write!(f, "kernels    by class and dimensions: {units} units at {mhz} MHz, L2 of {mib} MiB")?;
            let source = self.compute_source().0.map_or_else(String::new, |source| format!(" ({source})"));
            writeln!(f, "{source}")?;
        }
        if !self.protocols().is_empty() {
            writeln!(f)?;
            writeln!(
                f,
                "{:<22} {:>10} {:>12} {:>12} {:>24}",
                "protocol", "step ns", "GB/s", "efficiency", "used for bytes"
            )?;
        }
        let most = |bytes: u64| if bytes == u64::MAX { "all".to_owned() } else { bytes.to_string() };
        for (name, of) in self.protocols() {
            let range = format!("{} to {}", of.min_bytes, most(of.max_bytes));
            let cap = of.on(Rate::UNLIMITED);
            writeln!(f, "{name:<22} {:>10} {:>12} {:>12} {range:>24}", ns(of.step_ps), gbs(cap), of.efficiency)?;
            if of.nic_step_ps.is_some() || of.nic_gbs.is_some() {
                let (step_ps, cap) = (of.nic_step_ps.unwrap_or(of.step_ps), of.on_way(&ONE, None));
                writeln!(f, "{:<22} {:>10} {:>12}", "  between nodes", ns(step_ps), gbs(cap))?;
            }
            if (of.min_chunk_bytes, of.max_chunk_bytes) != (0, u64::MAX) {
                let range = format!("{} to {}", of.min_chunk_bytes, most(of.max_chunk_bytes));
                writeln!(f, "{:<59} {range:>24}", "  for bytes by ranks")?;
            }
            if !of.algorithms.is_empty() {
                writeln!(f, "  with {}", of.algorithms.join(", "))?;
            }
            if let [(first, _), .., (last, _)] = of.factors[..] {
                let least = of.factors.iter().map(|&(_, factor)| factor).fold(f64::INFINITY, f64::min);
                let most = of.factors.iter().map(|&(_, factor)| factor).fold(0.0, f64::max);
                writeln!(f, "  of that {least:.3} to {most:.3} of the time, by size from {first} to {last} bytes")?;
            }
            if of.slice_bytes > 0 {
                writeln!(f, "  in slices of {} bytes", of.slice_bytes)?;
            }
        }
        writeln!(f)?;
        writeln!(f, "{:<22} {:>10} {:>12} {:>12}", "slot tier", "setup ns", "GB/s", "bank GB/s")?;
        for (name, tier) in &costs.tiers {
            let bank = if tier.bank_rate.is_unlimited() { "-".to_owned() } else { gbs(tier.bank_rate) };
            writeln!(f, "{name:<22} {:>10} {:>12} {bank:>12}", ns(tier.setup_ps), gbs(tier.rate))?;
        }
        Ok(())
    }
}

/// An interface that carries whatever its protocol does.
const ONE: Ways = Ways { interface: Rate::UNLIMITED, used: 1.0, striped: 1.0, gain: 1.0 };

/// Bandwidth and latency of the SIP links where all agree.
fn uniform(machine: &Machine) -> Option<(Rate, Ps)> {
    let mut links = machine.links_between_sips();
    let first = links.next()?;
    let same = |link: crate::SipLink| (link.rate, link.latency_ps) == (first.rate, first.latency_ps);
    // Only a custom network can disagree.
    let agreed = !matches!(machine.sfr.network, SipNetwork::Custom) || links.all(same);
    agreed.then_some((first.rate, first.latency_ps))
}

/// The network in words.
pub(crate) fn network(machine: &Machine) -> String {
    let mut text = machine.topology_name().to_owned();
    match machine.sfr.network {
        SipNetwork::Grid { w, h, d: 1, .. } => _ = write!(text, " {w} x {h}"),
        SipNetwork::Grid { w, h, d, .. } => _ = write!(text, " {w} x {h} x {d}"),
        SipNetwork::Hypercube { dims } => _ = write!(text, " of {dims} dimensions"),
        _ => {}
    }
    text
}

/// Nanoseconds without trailing zeros.
pub(crate) fn ns(ps: Ps) -> String {
    trimmed(format!("{}.{:03}", ps / 1000, ps % 1000))
}

/// GB/s without trailing zeros.
pub(crate) fn gbs(rate: Rate) -> String {
    if rate.is_unlimited() { "unlimited".to_owned() } else { trimmed(format!("{:.3}", rate.gbs())) }
}

fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn per_ns(rate: u64) -> String {
    if rate == u64::MAX { "unlimited".to_owned() } else { rate.to_string() }
}

fn bytes(count: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|&(_, unit)| count >= unit) {
        Some((name, unit)) => format!("{} {name}", trimmed(format!("{:.3}", count as f64 / unit as f64))),
        None => format!("{count} B"),
    }
}
