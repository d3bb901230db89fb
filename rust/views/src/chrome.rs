//! Timelines as Chrome's trace-event JSON, for tools that do not read Perfetto's own format.
//!
//! The process is the outermost group, the thread is the track. Slices are begin and end events (`B`, `E`) rather
//! than complete ones (`X`): readers round `ts` and `dur` apart, after which a slice may reach out of the one around it
//! and be dropped, whereas rounding begins and ends keeps their order. `ts` is in microseconds, to the nanosecond; a
//! slice whose ends are no whole nanoseconds has them as `args`, `start_ps` and `end_ps`. Messages are `s` and `f`
//! events right behind the begin of the slice they belong to, `t` where more than two slices are joined; counters are `C`.

use crate::tracks::{Flow, Slice, Tracks};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The text of a `.json` timeline, one event a line.
pub fn render(tracks: &Tracks) -> String {
    let names: Vec<String> = tracks.names.iter().map(|name| quoted(name)).collect();
    let origins: Vec<String> = tracks.origins.iter().map(|origin| quoted(origin)).collect();
    let processes = processes(tracks);
    let mut out = String::with_capacity(160 * tracks.slices.len());
    out.push_str("{\"displayTimeUnit\":\"ns\",\"otherData\":{");
    facts(&mut out, tracks);
    out.push_str("},\"traceEvents\":[\n");
    describe(&mut out, tracks, &processes);
    let mut begun = BTreeSet::new();
    for edge in tracks.edges() {
        let slice = &tracks.slices[edge.slice as usize];
        let (pid, tid) = (processes[slice.track as usize], slice.track + 1);
        let at = Micros(edge.at / 1000);
        let end = |out: &mut String, phase: &str| {
            add(out, format_args!("{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{at}"));
        };
        if !edge.begins {
            end(&mut out, "E");
            out.push_str("},\n");
            continue;
        }
        end(&mut out, "B");
        add(&mut out, format_args!(",\"name\":{},\"args\":{{", names[slice.name as usize]));
        if edge.slice == 0 {
            facts(&mut out, tracks);
        }
        args(&mut out, tracks, slice, &origins);
        out.push_str("}},\n");
        let (phase, message, binding) = match slice.flow {
            Flow::None => continue,
            Flow::Out(message) => ("s", message, ""),
            Flow::In(message) => ("f", message, ",\"bp\":\"e\""),
            Flow::With(message) if begun.insert(message) => ("s", message, ""),
            Flow::With(message) => ("t", message, ",\"bp\":\"e\""),
        };
        end(&mut out, phase);
        add(&mut out, format_args!(",\"id\":{},\"name\":\"message\",\"cat\":\"message\"{binding}}},\n", message + 1));
    }
    for counter in &tracks.counters {
        let (pid, name) = (processes[counter.track as usize], quoted(&tracks.tracks[counter.track as usize].name));
        let unit = counter.unit.name();
        for &(ns, value) in &counter.points {
            let at = Micros(ns);
            let series = format_args!(
                "{{\"ph\":\"C\",\"pid\":{pid},\"ts\":{at},\"name\":{name},\"args\":{{\"{unit}\":{value}}}}},\n"
            );
            add(&mut out, series);
        }
    }
    // The last event's comma.
    out.truncate(out.len() - 2);
    out.push_str("\n]}\n");
    out
}

/// Nanoseconds, shown as microseconds.
#[derive(Clone, Copy)]
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Writing to a string cannot fail.
fn add(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).unwrap_or_default();
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Per track the number of its outermost group, from 1.
fn processes(tracks: &Tracks) -> Vec<u32> {
    let mut of: Vec<u32> = Vec::with_capacity(tracks.tracks.len());
    for (index, track) in (1..).zip(&tracks.tracks) {
        of.push(track.parent.map_or(index, |parent| of[parent as usize]));
    }
    of
}

fn describe(out: &mut String, tracks: &Tracks, processes: &[u32]) {
    let groups = tracks.is_group();
    // Without the outermost group, which is the process.
    let mut paths: Vec<String> = Vec::with_capacity(tracks.tracks.len());
    for (index, track) in tracks.tracks.iter().enumerate() {
        let (pid, tid) = (processes[index], index + 1);
        let mut meta = |name: &str, key: &str, value: &str| {
            let event = format_args!(
                "{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{name}\",\"args\":{{\"{key}\":{value}}}}},\n"
            );
            add(out, event);
        };
        let inside = track.parent.map_or("", |parent| paths[parent as usize].as_str());
        let path = match (track.parent, inside) {
            (None, _) => String::new(),
            (_, "") => track.name.clone(),
            (_, inside) => format!("{inside} / {}", track.name),
        };
        if track.parent.is_none() {
            meta("process_name", "name", &quoted(&track.name));
            meta("process_sort_index", "sort_index", &tid.to_string());
        }
        if !groups[index] {
            let name = if path.is_empty() { &track.name } else { &path };
            meta("thread_name", "name", &quoted(name));
            meta("thread_sort_index", "sort_index", &tid.to_string());
        }
        paths.push(path);
    }
}

fn facts(out: &mut String, tracks: &Tracks) {
    for (index, (name, value)) in tracks.facts.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        add(out, format_args!("{comma}\"{name}\":{}", quoted(value)));
    }
}

fn args(out: &mut String, tracks: &Tracks, slice: &Slice, origins: &[String]) {
    if let Some(origin) = tracks.shown_origin(slice) {
        add(out, format_args!("\"origin\":{}", origins[origin as usize]));
    }
    if slice.is_fine() {
        let comma = if out.ends_with('{') { "" } else { "," };
        add(out, format_args!("{comma}\"start_ps\":{},\"end_ps\":{}", slice.start, slice.end));
    }
}
