//! Files that tests and benchmarks make.

/// The fused ring all-reduce of `n` ranks, one thread block and `2n - 1` steps per rank.
pub(crate) fn ring_xml(n: u32) -> String {
    let mut out = format!(
        "<algo name=\"ring\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{n}\" ngpus=\"{n}\" coll=\"allreduce\" \
         inplace=\"1\" outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\">\n"
    );
    for rank in 0..n {
        let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
        out += &format!("  <gpu id=\"{rank}\" i_chunks=\"{n}\" o_chunks=\"{n}\" s_chunks=\"0\">\n");
        out += &format!("    <tb id=\"0\" send=\"{next}\" recv=\"{before}\" chan=\"0\">\n");
        for k in 0..2 * n - 1 {
            let kind = match k {
                0 => "s",
                k if k < n - 1 => "rrs",
                k if k == n - 1 => "rrcs",
                k if k < 2 * n - 2 => "rcs",
                _ => "r",
            };
            let chunk = (rank + 2 * n - k) % n;
            out += &format!(
                "      <step s=\"{k}\" type=\"{kind}\" srcbuf=\"i\" srcoff=\"{chunk}\" dstbuf=\"i\" dstoff=\"{chunk}\" \
                 cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n"
            );
        }
        out += "    </tb>\n  </gpu>\n";
    }
    out + "</algo>\n"
}
