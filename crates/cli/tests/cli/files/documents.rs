//! Checks that a shell accepts the commands of the documents as they are written: URLs with a query
//! are quoted.

use std::path::{Path, PathBuf};

use barograph_testkit::fenced;

#[test]
fn urls_with_a_query_are_quoted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    collect(&root.join("docs"), &mut files);
    let mut bare = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let commands = fenced(&text, "sh") + &fenced(&text, "sh no-test");
        bare.extend(commands.lines().filter(|line| has_bare_query(line)).map(|line| (file, line.to_owned())));
    }
    assert!(bare.is_empty(), "a shell takes the ? of a URL for a pattern: {bare:?}");
    assert!(has_bare_query("curl -s localhost:1/v1/forecast?quantity=rtt"));
    assert!(!has_bare_query("curl -s 'localhost:1/v1/forecast?quantity=rtt' # right?"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

/// Whether a word outside quotes has a `/` and, after it, a `?`.
fn has_bare_query(line: &str) -> bool {
    let (mut quote, mut is_path) = (None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if !is_path => return false,
            (None, ' ') => is_path = false,
            (None, '/') => is_path = true,
            (None, '?') if is_path => return true,
            (None, _) => {}
        }
    }
    false
}
