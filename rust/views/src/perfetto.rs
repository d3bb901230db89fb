//! Timelines for Perfetto: TrackEvent protobuf, the format its documentation recommends for traces of one's own.
//!
//! Field numbers are those of `protos/perfetto/trace/` in google/perfetto (`trace_packet.proto`,
//! `track_event/{track_descriptor,track_event,counter_descriptor,debug_annotation}.proto`,
//! `interned_data/interned_data.proto`). Fourteen fields of seven messages are written and none is read, so they go
//! through the protobuf writer that the Chakra traces use rather than through generated code for the whole schema.
//!
//! All packets are of one sequence. The first one interns every name, annotation and origin; then come the tracks, the
//! slices in order of time, and the counters. Timestamps are whole nanoseconds (see [`crate::tracks`]); a slice whose
//! ends are no whole nanoseconds has them as annotations `start_ps` and `end_ps`. A reader takes the event with a
//! flow's id that comes first for its source, hence the order of time over all tracks.

use crate::tracks::{Flow, Slice, Tracks, Unit};
use ahbm_wire::protobuf::{Wire, Writer};

/// Field numbers, by message.
mod field {
    pub(super) const PACKET: u32 = 1;
    pub(super) mod packet {
        pub(crate) const TIMESTAMP: u32 = 8;
        pub(crate) const SEQUENCE: u32 = 10;
        pub(crate) const TRACK_EVENT: u32 = 11;
        pub(crate) const INTERNED: u32 = 12;
        pub(crate) const FLAGS: u32 = 13;
        pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    }
    pub(super) mod interned {
        pub(crate) const EVENT_NAMES: u32 = 2;
        pub(crate) const ANNOTATION_NAMES: u32 = 3;
        pub(crate) const ANNOTATION_STRINGS: u32 = 29;
        pub(crate) const IID: u32 = 1;
        pub(crate) const TEXT: u32 = 2;
    }
    pub(super) mod track {
        pub(crate) const UUID: u32 = 1;
        pub(crate) const NAME: u32 = 2;
        pub(crate) const PARENT: u32 = 5;
        pub(crate) const COUNTER: u32 = 8;
        pub(crate) const CHILD_ORDERING: u32 = 11;
        pub(crate) const RANK: u32 = 12;
        pub(crate) const COUNTER_UNIT: u32 = 3;
    }
    pub(super) mod event {
        pub(crate) const ANNOTATION: u32 = 4;
        pub(crate) const TYPE: u32 = 9;
        pub(crate) const NAME_IID: u32 = 10;
        pub(crate) const TRACK: u32 = 11;
        pub(crate) const COUNTER_VALUE: u32 = 30;
        pub(crate) const FLOW: u32 = 47;
        pub(crate) const LAST_OF_FLOW: u32 = 48;
    }
    pub(super) mod annotation {
        pub(crate) const NAME_IID: u32 = 1;
        pub(crate) const UNSIGNED: u32 = 3;
        pub(crate) const TEXT: u32 = 6;
        pub(crate) const TEXT_IID: u32 = 17;
        pub(crate) const NAME: u32 = 10;
    }
}
use field::{annotation, event, interned, packet, track};

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const COUNTER: u64 = 4;
const UNIT_COUNT: u64 = 2;
const UNIT_BYTES: u64 = 3;
const ORDER_EXPLICIT: u64 = 3;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// Names of annotations, by id less one.
const ANNOTATIONS: [&str; 3] = ["origin", "start_ps", "end_ps"];

/// The bytes of a `.pftrace` file.
pub fn render(tracks: &Tracks) -> Vec<u8> {
    let mut out = Packets { file: Writer::default(), packet: Writer::default(), body: Writer::default() };
    out.file.bytes.reserve(64 * tracks.slices.len());
    out.intern(tracks);
    out.descriptors(tracks);
    for edge in tracks.edges() {
        let slice = &tracks.slices[edge.slice as usize];
        out.body.bytes.clear();
        out.body.varint(event::TYPE, if edge.begins { SLICE_BEGIN } else { SLICE_END });
        out.body.varint(event::TRACK, uuid(slice.track));
        if edge.begins {
            out.begin(tracks, slice, edge.slice == 0);
        }
        out.event(edge.at / 1000);
    }
    for counter in &tracks.counters {
        for &(ns, value) in &counter.points {
            out.body.bytes.clear();
            out.body.varint(event::TYPE, COUNTER);
            out.body.varint(event::TRACK, uuid(counter.track));
            out.body.varint(event::COUNTER_VALUE, value as u64);
            out.event(ns);
        }
    }
    out.file.bytes
}

/// 0 is Perfetto's own root.
fn uuid(track: u32) -> u64 {
    u64::from(track) + 1
}

struct Packets {
    file: Writer,
    /// The packet being made, and the message in it.
    packet: Writer,
    body: Writer,
}

impl Packets {
    fn intern(&mut self, tracks: &Tracks) {
        let mut entry = Writer::default();
        let mut intern = |field: u32, texts: &mut dyn Iterator<Item = &str>| {
            for (iid, text) in (1..).zip(texts) {
                entry.bytes.clear();
                entry.varint(interned::IID, iid);
                entry.message(interned::TEXT, text.as_bytes());
                self.body.message(field, &entry.bytes);
            }
        };
        intern(interned::EVENT_NAMES, &mut tracks.names.iter().map(String::as_str));
        intern(interned::ANNOTATION_NAMES, &mut ANNOTATIONS.into_iter());
        intern(interned::ANNOTATION_STRINGS, &mut tracks.origins.iter().map(String::as_str));
        self.packet(packet::INTERNED, None, STATE_CLEARED | NEEDS_STATE);
    }

    fn descriptors(&mut self, tracks: &Tracks) {
        let groups = tracks.is_group();
        let mut counters = vec![None; tracks.tracks.len()];
        tracks.counters.iter().for_each(|counter| counters[counter.track as usize] = Some(counter.unit));
        for (index, row) in (0..).zip(&tracks.tracks) {
            let body = &mut self.body;
            body.bytes.clear();
            body.varint(track::UUID, uuid(index));
            body.message(track::NAME, row.name.as_bytes());
            if let Some(parent) = row.parent {
                body.varint(track::PARENT, uuid(parent));
            }
            if let Some(counted) = counters[index as usize] {
                let mut unit = Writer::default();
                unit.varint(track::COUNTER_UNIT, if counted == Unit::Bytes { UNIT_BYTES } else { UNIT_COUNT });
                body.message(track::COUNTER, &unit.bytes);
            }
            if groups[index as usize] {
                body.varint(track::CHILD_ORDERING, ORDER_EXPLICIT);
            }
            body.varint(track::RANK, u64::from(index));
            self.packet(packet::TRACK_DESCRIPTOR, None, NEEDS_STATE);
        }
    }

    fn begin(&mut self, tracks: &Tracks, slice: &Slice, with_facts: bool) {
        let body = &mut self.body;
        body.varint(event::NAME_IID, u64::from(slice.name) + 1);
        match slice.flow {
            Flow::None => {}
            Flow::Out(message) | Flow::With(message) => body.scalar(event::FLOW, Wire::Fixed64, u64::from(message) + 1),
            Flow::In(message) => body.scalar(event::LAST_OF_FLOW, Wire::Fixed64, u64::from(message) + 1),
        }
        let mut note = Writer::default();
        let mut annotate = |name: u64, field: u32, value: u64| {
            note.bytes.clear();
            note.varint(annotation::NAME_IID, name);
            note.varint(field, value);
            body.message(event::ANNOTATION, &note.bytes);
        };
        if let Some(origin) = tracks.shown_origin(slice) {
            annotate(1, annotation::TEXT_IID, u64::from(origin) + 1);
        }
        if slice.is_fine() {
            annotate(2, annotation::UNSIGNED, slice.start);
            annotate(3, annotation::UNSIGNED, slice.end);
        }
        for (name, value) in tracks.facts.iter().filter(|_| with_facts) {
            let mut fact = Writer::default();
            fact.message(annotation::NAME, name.as_bytes());
            fact.message(annotation::TEXT, value.as_bytes());
            self.body.message(event::ANNOTATION, &fact.bytes);
        }
    }

    fn event(&mut self, ns: u64) {
        self.packet(packet::TRACK_EVENT, Some(ns), NEEDS_STATE);
    }

    /// Closes a packet with the body as its `field`.
    fn packet(&mut self, field: u32, ns: Option<u64>, flags: u64) {
        self.packet.bytes.clear();
        if let Some(ns) = ns {
            self.packet.varint(packet::TIMESTAMP, ns);
        }
        self.packet.varint(packet::SEQUENCE, 1);
        self.packet.varint(packet::FLAGS, flags);
        self.packet.message(field, &self.body.bytes);
        self.file.message(field::PACKET, &self.packet.bytes);
    }
}
