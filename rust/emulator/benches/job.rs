//! Milliseconds to time a job whose launches overlap two by two, by their number.
//!
//! `cargo bench -p ahbm-emulator --bench job`; one line of JSON per case, the best of three runs.

#[path = "../tests/it/support/ring.rs"]
#[allow(dead_code)]
mod ring;
#[path = "../tests/it/support/transfer.rs"]
mod transfer;

use ahbm_emulator::job::{Launch, schedule};
use ahbm_emulator::{Options, simulate};
use ahbm_program::job::Step;
use std::time::Instant;
use transfer::transfer;

fn main() {
    let machine = ring::npu_network("ring_1d", 8, 100.0, 50.0, "cut_through");
    let options = Options::default();
    let program = transfer(&machine, 0, 1, 2, 512);
    let latency = simulate(&program, &machine, &options).map_or(0, |timeline| timeline.latency);
    let launch = Launch { program: Some((&program, latency)), after: None };
    for launches in [2_000u32, 20_000, 80_000] {
        // Two hosts enter every other launch each, the second one in the middle of the first one's.
        let hosts = [0, 1].map(|host| {
            let mine = (host..launches).step_by(2);
            let steps = mine.flat_map(|launch| [Step::Advance(2 * latency), Step::Arrive(launch), Step::Wait(launch)]);
            [Step::Advance(latency / 2 * u64::from(host))].into_iter().chain(steps).collect::<Vec<_>>()
        });
        let hosts = [&hosts[0][..], &hosts[1][..]];
        let launches = vec![launch; launches as usize];
        let mut best = f64::INFINITY;
        let mut together = 0;
        for _ in 0..3 {
            let began = Instant::now();
            together = schedule(&hosts, &launches, &machine, &options).map_or(0, |schedule| schedule.together);
            best = best.min(began.elapsed().as_secs_f64());
        }
        println!("{{\"launches\": {}, \"overlapping\": {together}, \"ms\": {:.1}}}", launches.len(), 1000.0 * best);
    }
}
