//! Messages per second and bytes per agent of the timing pass, on the traffic of a ring all-reduce.
//!
//! `cargo bench -p ahbm-emulator --bench ring`; one line of JSON per case. Credits, slot accounting and
//! link reservations are on. Each case runs a few times; the best run counts (the machine is shared).

#[path = "../tests/it/support/ring.rs"]
mod support;

use ahbm_emulator::{Options, simulate};
use std::time::Instant;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or("VmRSS: 0 kB");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or("VmHWM: 0 kB");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn case(name: &str, ranks: u32, rounds: u32, model: &str, record: bool) {
    let machine = support::npu_network("ring_1d", ranks, 500.0, 50.0, model);
    let before = resident_bytes();
    let program = support::ring(&machine, rounds, 1024, 4);
    let built = resident_bytes();
    let mut best = f64::INFINITY;
    let mut timeline = ahbm_emulator::Timeline::default();
    for _ in 0..5 {
        let start = Instant::now();
        timeline =
            simulate(&program, &machine, &Options { record, fold: false, ..Options::default() }).expect("a live ring");
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{{\"case\":\"{name}\",\"ranks\":{ranks},\"messages\":{},\"events\":{},\"seconds\":{best:.4},\"messages_per_s\":{:.0},\
         \"program_bytes_per_agent\":{},\"run_bytes_per_agent\":{},\"hash\":\"{:016x}\"}}",
        timeline.messages,
        timeline.events,
        timeline.messages as f64 / best,
        built.saturating_sub(before) / u64::from(ranks),
        peak_bytes().saturating_sub(built) / u64::from(ranks),
        timeline.hash,
    );
}

fn main() {
    // The large case first: its memory figure is the process's peak.
    case("ring_65536", 65_536, 64, "cut_through", false);
    case("ring_1024", 1024, 2046, "cut_through", false);
    case("ring_1024_recorded", 1024, 2046, "cut_through", true);
    case("ring_1024_flit", 1024, 2046, "flit", false);
}
