//! A drawing of the machine: the network between SIPs, and one SIP's cubes with their PEs.

use crate::dump::{gbs, network, ns};
use crate::{Machine, SipNetwork};
use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::fmt::Write;

/// More than these would be a blot rather than a drawing.
const MAX_SIPS: u32 = 256;
const MAX_LINES: usize = 2_000;
const MAX_PES: u32 = 2_048;

const MARGIN: f64 = 24.0;
const HEAD: f64 = 64.0;
// Plain rules, the dark ones repeated: many renderers know neither variables nor media queries.
const STYLE: &str = "<style>\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#1b1f24;text-anchor:middle;dominant-baseline:central}\
.h{font-size:15px;font-weight:600;text-anchor:start}.n{fill:#6a737d;text-anchor:start}\
.paper{fill:#fff}.link{stroke:#8a94a0;stroke-width:1.4;fill:none}.sip,.cube,.io{stroke:#8a94a0}\
.sip{fill:#dbe9ff}.cube{fill:#f1f4f8}.io{fill:#f6d9a8}.pe{fill:#2f6fde}.p{font-size:8px;fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#e8ecf1}.n{fill:#9aa5b1}.paper{fill:#12161b}.link{stroke:#6b7683}\
.sip,.cube,.io{stroke:#6b7683}.sip{fill:#1f3a63}.cube{fill:#1d232b}.io{fill:#6b4d1c}.pe{fill:#6ea2ff}\
.p{fill:#12161b}}</style>";

type Point = (f64, f64);

impl Machine {
    /// The drawing as an SVG document; follows the viewer's light or dark preference.
    pub fn to_svg(&self) -> String {
        let mut left = String::new();
        let (left_w, left_h) = draw_sips(self, &mut left);
        let mut right = String::new();
        let (right_w, right_h) = draw_cubes(self, &mut right);
        let (width, height) = (left_w + right_w + 3.0 * MARGIN, HEAD + left_h.max(right_h) + MARGIN);
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\"><title>{} SIPs, {}</title>{STYLE}\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\
             <g transform=\"translate({MARGIN} {HEAD})\">{left}</g>\
             <g transform=\"translate({:.1} {HEAD})\">{right}</g></svg>",
            self.sfr.sips,
            network(self),
            left_w + 2.0 * MARGIN
        );
        out
    }
}

fn heading(out: &mut String, title: &str, note: &str) {
    let _ = write!(
        out,
        "<text class=\"h\" x=\"0\" y=\"-42\">{title}</text><text class=\"n\" x=\"0\" y=\"-22\">{note}</text>"
    );
}

/// Draws the SIPs and their links; gives width and height.
fn draw_sips(machine: &Machine, out: &mut String) -> Point {
    let sips = machine.sfr.sips;
    let mut note = match machine.links_between_sips().next() {
        Some(_) if matches!(machine.sfr.network, SipNetwork::Custom) => "declared links".to_owned(),
        Some(link) => format!("{} GB/s, {} ns per link", gbs(link.rate), ns(link.latency_ps)),
        None => "no links".to_owned(),
    };
    if sips > MAX_SIPS {
        note.push_str(&format!("; {sips} SIPs are too many to draw"));
        heading(out, &network(machine), &note);
        return (420.0, 0.0);
    }
    let (mut places, width, height) = sip_places(machine);
    places.extend((0..machine.relays()).map(|relay| relay_place(relay, machine.relays(), width, height)));
    let mut drawn = BTreeSet::new();
    // Lines between layers would cover everything else; one sentence says as much.
    let layer = match machine.sfr.network {
        SipNetwork::Grid { w, h, .. } => w * h,
        _ => sips + machine.relays() + 1,
    };
    let between_layers = |pair: (u32, u32)| pair.0 / layer != pair.1 / layer;
    let mut layered = false;
    for link in machine.links_between_sips() {
        let pair = (link.from.min(link.to), link.from.max(link.to));
        if drawn.len() == MAX_LINES {
            note.push_str("; not all links are drawn");
            break;
        }
        if between_layers(pair) {
            layered = true;
            continue;
        }
        if let (true, Some(a), Some(b)) = (drawn.insert(pair), places.get(pair.0 as usize), places.get(pair.1 as usize))
        {
            draw_link(out, *a, *b, matches!(machine.sfr.network, SipNetwork::Grid { .. }));
        }
    }
    if layered {
        note.push_str("; layers are joined place by place");
    }
    for (index, (x, y)) in places.iter().enumerate() {
        let (class, label) =
            if index as u32 >= sips { ("io", machine.end_name(index as u32)) } else { ("sip", index.to_string()) };
        let half = if index as u32 >= sips { 26.0f64.max(3.4 * label.len() as f64 + 6.0) } else { 16.0 };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.0}\" height=\"32\" rx=\"5\"/>\
             <text x=\"{x:.1}\" y=\"{y:.1}\">{label}</text>",
            x - half,
            y - 16.0,
            2.0 * half
        );
    }
    heading(out, &network(machine), &note);
    (width.max(420.0), height)
}

/// One in the middle, several on a circle of half the size.
fn relay_place(relay: u32, relays: u32, width: f64, height: f64) -> Point {
    let radius = if relays == 1 { 0.0 } else { width.min(height) / 4.0 };
    let angle = TAU * f64::from(relay) / f64::from(relays) - TAU / 4.0;
    (width / 2.0 + radius * angle.cos(), height / 2.0 + radius * angle.sin())
}

/// Links that would run through SIPs in between bend around them.
fn draw_link(out: &mut String, a: Point, b: Point, grid: bool) {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx.hypot(dy);
    if !grid || length < 100.0 {
        let _ = write!(out, "<path class=\"link\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>", a.0, a.1, b.0, b.1);
    } else {
        let bend = 60.0 / length;
        let (mx, my) = ((a.0 + b.0) / 2.0 + dy * bend, (a.1 + b.1) / 2.0 - dx * bend);
        let _ =
            write!(out, "<path class=\"link\" d=\"M{:.1} {:.1}Q{mx:.1} {my:.1} {:.1} {:.1}\"/>", a.0, a.1, b.0, b.1);
    }
}

/// Grids as grids (layers of a third dimension side by side), everything else on a circle.
fn sip_places(machine: &Machine) -> (Vec<Point>, f64, f64) {
    let sips = machine.sfr.sips;
    let step = 68.0;
    if let SipNetwork::Grid { w, h, d, .. } = machine.sfr.network {
        let layer = f64::from(w) * step + 12.0;
        let place = |sip: u32| {
            let (x, y, z) = (f64::from(sip % w), f64::from(sip / w % h), f64::from(sip / (w * h)));
            (z * layer + x * step + 34.0, y * step + 34.0 + z * 14.0)
        };
        let size = (f64::from(d) * layer, f64::from(h) * step + f64::from(d) * 14.0);
        return ((0..sips).map(place).collect(), size.0, size.1);
    }
    let radius = (f64::from(sips) * 46.0 / TAU).max(80.0);
    let middle = radius + 30.0;
    let place = |sip: u32| {
        let angle = TAU * f64::from(sip) / f64::from(sips) - TAU / 4.0;
        (middle + radius * angle.cos(), middle + radius * angle.sin())
    };
    ((0..sips).map(place).collect(), 2.0 * middle, 2.0 * middle)
}

/// Draws the cubes of one SIP; gives width and height.
fn draw_cubes(machine: &Machine, out: &mut String) -> Point {
    let (sfr, cube) = (&machine.sfr, &machine.cube);
    let (w, h) = (f64::from(sfr.cube_w), f64::from(sfr.cube_h));
    let side = (640.0 / w.max(h)).clamp(20.0, 104.0);
    let step = side + (side / 5.0).max(4.0);
    let width = w * step;
    let _ = write!(
        out,
        "<rect class=\"io\" x=\"0\" y=\"0\" width=\"{:.1}\" height=\"22\" rx=\"4\"/><text x=\"{:.1}\" y=\"11\">I/O</text>",
        (width - step + side).max(36.0),
        (width - step + side).max(36.0) / 2.0
    );
    let with_pes = side >= 60.0 && sfr.cubes() * sfr.pes <= MAX_PES;
    for id in 0..sfr.cubes() {
        let (col, row) = (f64::from(id % sfr.cube_w), f64::from(id / sfr.cube_w));
        let (x, y) = (col * step, 34.0 + row * step);
        let middle = side / 2.0;
        if col + 1.0 < w {
            let _ = write!(out, "<path class=\"link\" d=\"M{:.1} {:.1}h{:.1}\"/>", x + side, y + middle, step - side);
        }
        if row + 1.0 < h {
            let _ = write!(out, "<path class=\"link\" d=\"M{:.1} {:.1}v{:.1}\"/>", x + middle, y + side, step - side);
        }
        let _ = write!(
            out,
            "<rect class=\"cube\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side:.1}\" height=\"{side:.1}\" rx=\"4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{id}</text>",
            x + middle,
            if cube.rows > 2 { y + middle } else { y + middle - 24.0_f64.min(middle / 2.0) }
        );
        if with_pes {
            let (cell_w, cell_h) = (side / f64::from(cube.cols), side / f64::from(cube.rows));
            let edge = cell_w.min(cell_h).clamp(2.0, 16.0) - 1.0;
            for pe in 0..sfr.pes {
                let (r, c) = cube.pe_router(pe);
                let (px, py) = (x + (f64::from(c) + 0.5) * cell_w, y + (f64::from(r) + 0.5) * cell_h);
                let _ = write!(
                    out,
                    "<rect class=\"pe\" x=\"{:.1}\" y=\"{:.1}\" width=\"{edge:.1}\" height=\"{edge:.1}\" rx=\"2\"/>",
                    px - edge / 2.0,
                    py - edge / 2.0
                );
                if edge >= 10.0 && sfr.pes <= 100 {
                    let _ = write!(out, "<text class=\"p\" x=\"{px:.1}\" y=\"{py:.1}\">{pe}</text>");
                }
            }
        }
    }
    let note = format!(
        "{} x {} cubes, {} PEs each; UCIe {} x {} GB/s per side",
        sfr.cube_w,
        sfr.cube_h,
        sfr.pes,
        cube.connections,
        gbs(cube.ucie)
    );
    heading(out, "one SIP", &note);
    (width.max(400.0), 34.0 + h * step)
}
