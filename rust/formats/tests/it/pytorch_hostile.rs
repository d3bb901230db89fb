//! Bytes from strangers: every one is a job or a finding, never a panic and never without bound.

use crate::support::kineto::Profile;
use ahbm_formats::pytorch::{Kind, Options, parse};
use ahbm_plan::{Budget, Limit};
use ahbm_workload::Groups;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn code(kind: Kind, bytes: &[u8], budget: Budget) -> &'static str {
    let options = Options { budget, host_gaps: true, ..Options::default() };
    let read = parse("job", kind, &[("t.json.gz", bytes)], &options, Groups::default());
    read.map_or_else(|findings| findings[0].code, |workload| workload.calls().map_or_else(|f| f[0].code, |_| ""))
}

fn small() -> Budget {
    Budget::default().with(Limit::Ranks, 64).with(Limit::InflatedBytes, 1 << 20)
}

fn sample() -> Profile {
    let mut profile = Profile::new();
    profile.kernel("before", 7, 10.0);
    profile.all_reduce(1024, 30.0);
    profile.runtime("cudaStreamWaitEvent");
    profile.runtime("cudaStreamSynchronize");
    let facts = r#""Collective name":"all_to_allv","In msg nelems":8,"Group size":0,"dtype":"Float","In split size":"[1, 3]","Process Group Name":"0","Process Group Ranks":"[0]""#;
    profile.nccl("ncclDevKernel_SendRecv", 24, 5.0, facts);
    profile.step(3, |profile| profile.kernel("after", 7, 10.0));
    profile
}

#[test]
fn gzip_is_bounded_and_its_end_is_missed() {
    let text = sample().text(0, 1);
    let packed = gzip(text.as_bytes());
    assert_eq!(code(Kind::Kineto, &packed, small()), "");
    assert_eq!(code(Kind::Kineto, &packed[..packed.len() / 2], small()), "AHBM-F132");
    let bomb = gzip(format!(r#"{{"x":{}1}}"#, " ".repeat(8 << 20)).as_bytes());
    assert_eq!(code(Kind::Kineto, &bomb, small()), "AHBM-B202");
    assert_eq!(code(Kind::Kineto, &bomb, Budget::default().with(Limit::InflationRatio, 10)), "AHBM-B203");
}

#[test]
fn every_cut_of_a_trace_is_refused() {
    let text = sample().text(0, 1);
    for end in 0..text.len() {
        assert_ne!(code(Kind::Kineto, &text.as_bytes()[..end], small()), "", "{}", &text[..end]);
    }
    assert_eq!(code(Kind::Kineto, format!("{text} x").as_bytes(), small()), "AHBM-F183");
}

#[test]
fn numbers_beyond_every_type_are_findings() {
    let text = sample().text(0, 1);
    for (from, to) in [
        (r#""Group size":0"#, r#""Group size":4294967295"#),
        (r#""world_size":1"#, r#""world_size":4294967295"#),
        (r#""rank":0"#, r#""rank":4294967295"#),
    ] {
        assert!(text.contains(from));
        assert_eq!(code(Kind::Kineto, text.replace(from, to).as_bytes(), small()), "AHBM-B206", "{to}");
    }
    let elements = text.replace(r#""In msg nelems":8"#, r#""In msg nelems":18446744073709551615"#);
    assert_eq!(code(Kind::Kineto, elements.as_bytes(), small()), "AHBM-F184");
    let dims = text
        .replace("[[1024]]", "[[4294967296,4294967296]]")
        .replace("[[[1024]],[]]", "[[[4294967296,4294967296]],[]]");
    assert_eq!(code(Kind::Kineto, dims.as_bytes(), small()), "AHBM-F184");
}

#[test]
fn white_space_may_stand_anywhere() {
    let text = sample().text(0, 1);
    let wide = text.replace("\":", "\" :\n ").replace(",\"", "\t, \"");
    assert_eq!(code(Kind::Kineto, wide.as_bytes(), small()), "");
    assert_eq!(code(Kind::Kineto, format!("\n {{ }} \n{text}").as_bytes(), small()), "AHBM-F183");
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("-1".to_owned()),
        Just("1e999".to_owned()),
        Just("NaN".to_owned()),
        Just("99999999999999999999999".to_owned()),
        Just(r#""[0, 1""#.to_owned()),
        Just(r#""nccl:send 0->""#.to_owned()),
        any::<u64>().prop_map(|n| n.to_string()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|list| format!("[{}]", list.join(","))),
            inner.prop_map(|value| format!(r#"{{"rank":{value},"ranks":{value}}}"#)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_byte_may_be_another(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = sample().text(0, 1).into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        code(Kind::Kineto, &bytes, small());
        code(Kind::Host, &bytes, small());
        let packed = gzip(&bytes);
        code(Kind::Kineto, &packed, small());
    }

    #[test]
    fn any_field_may_be_of_any_type(
        field in prop::sample::select(vec![
            "ph", "cat", "name", "ts", "dur", "tid", "args", "stream", "correlation", "Collective name", "In msg nelems",
            "Group size", "dtype", "In split size", "Process Group Name", "Process Group Ranks", "Input Dims",
            "Input type", "rank", "world_size", "distributedInfo", "traceEvents",
        ]),
        value in json(),
    ) {
        let text = sample().text(0, 1);
        let key = format!("\"{field}\":");
        let start = text.find(&key).unwrap() + key.len();
        let end = start + text[start..].find([',', '}']).unwrap();
        code(Kind::Kineto, format!("{}{value}{}", &text[..start], &text[end..]).as_bytes(), small());
        // Beside it too: of two, the last one counts, or the object is refused.
        code(Kind::Kineto, format!("{}{value},\"{field}\":{}", &text[..start], &text[start..]).as_bytes(), small());
    }

    #[test]
    fn any_host_trace_is_read_or_refused(values in json(), types in json(), attrs in json()) {
        let node = format!(r#"{{"id":1,"name":"record_param_comms","inputs":{{"values":[{values},3,["0",""],{values},"send",{values},1],"types":["Tensor(float)","Int","Tuple[String]","Int","String",{types}]}},"outputs":{values},"attrs":[{attrs}]}}"#);
        let other = format!(r###"{{"id":2,"name":"## process_group:init ##","inputs":{values}}}"###);
        code(Kind::Host, format!(r#"{{"schema":"1.1.0","pid":1,"nodes":[{node},{other}]}}"#).as_bytes(), small());
    }
}
