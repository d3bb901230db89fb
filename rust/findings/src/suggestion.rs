//! Guesses at what was meant.

/// "did you mean" for a name that is not among `known`.
pub fn suggestion(name: &str, known: &[&str]) -> String {
    let name: String = name.chars().take(64).collect();
    // A shared beginning says more than edit distance: `mesh_2d` means `mesh_2d_no_wrap`, not `torus_2d`.
    let extended = known.iter().find(|k| name.len() >= 3 && k.starts_with(&name));
    let nearest = known.iter().map(|k| (distance(&name, k), *k)).min_by_key(|&(d, _)| d);
    let close = nearest.filter(|&(d, k)| d <= 1 + name.len().max(k.len()) / 3).map(|(_, k)| k);
    match extended.copied().or(close) {
        Some(guess) => format!("did you mean `{guess}`?"),
        None => format!("known: {}", known.join(", ")),
    }
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
