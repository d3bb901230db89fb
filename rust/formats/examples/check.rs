//! Checks files: `cargo run --release -p ahbm-formats --example check -- SLOTS FILE...`.

use ahbm_formats::{Document, Reading};
use std::path::Path;
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let slots = args.next().map_or(2, |s| if s == "inf" { u32::MAX } else { s.parse().unwrap_or(2) });
    let reading = Reading { slots, ..Reading::default() };
    for file in args {
        let start = Instant::now();
        match Document::read(Path::new(&file), &reading) {
            Err(findings) => println!("{file}: {}", findings[0]),
            Ok(document) => {
                let read = start.elapsed();
                let verdict = document.check(&reading);
                println!(
                    "{file}: {} min_slots={:?} read {:.1} ms, check {:.1} ms",
                    verdict.outcome.name(),
                    verdict.min_slots,
                    read.as_secs_f64() * 1e3,
                    (start.elapsed() - read).as_secs_f64() * 1e3
                );
                for finding in verdict.findings.iter().take(3) {
                    println!("    {}", finding.to_string().replace('\n', "\n    "));
                }
            }
        }
    }
}
