//! `cargo run -p ahbm-machine --example topology -- FILE [--svg]`: prints a topology or its drawing.

use ahbm_machine::Machine;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first() else {
        eprintln!("usage: topology FILE [--svg]");
        std::process::exit(2);
    };
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| {
        eprintln!("{path}: {error}");
        std::process::exit(2);
    });
    match Machine::from_yaml(&text, path, &[]) {
        Ok(machine) if arguments.iter().any(|argument| argument == "--svg") => print!("{}", machine.to_svg()),
        Ok(machine) => print!("{}", machine.dump()),
        Err(findings) => {
            findings.iter().for_each(|finding| eprintln!("{finding}"));
            std::process::exit(1);
        }
    }
}
