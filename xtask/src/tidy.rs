//! `tidy`: the style rules of CONTRIBUTING.md that neither rustfmt nor clippy checks.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::rust_text;

/// Lines of a Rust file, tests included.
const FILE_LINES_MAX: usize = 900;
/// Lines of a Rust file before its tests.
const CODE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 100;
/// A word of so many characters is an address or captured bytes; it may make a line too long.
const WORD_CHARS_MAX: usize = 50;
/// Bytes of a file in the repository: larger ones are built or fetched, not committed.
const FILE_SIZE_MAX: u64 = 512 * 1024;

/// The one file that may hold unsafe code.
const UNSAFE_FILE: &str = "store/src/mapped_file.rs";

/// A file is named after the thing in it; these name none.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"];

/// Unfinished work belongs to the tracker. In two halves, so that this file does not find itself.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];

/// Code that is not there yet, left over, or tests that do not say what they expect.
const BANNED_CODE: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("db", "g!("),
    concat!("#[ign", "ore"),
    concat!("#[should", "_panic"),
];

/// Folders that exist on one machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Bytes captured or produced by other programs, kept as they are.
const VERBATIM_FOLDERS: &[&str] = &["golden", "fixtures", "snapshots"];

const TEXT_EXTENSIONS: &[&str] =
    &["rs", "toml", "md", "yaml", "yml", "sh", "py", "java", "conf", "properties"];
const WIDTH_EXTENSIONS: &[&str] = &["rs"];

pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let files = files(root)?;
    for file in &files {
        let path = root.join(file);
        // Listed by git and deleted in the work tree.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.len() > FILE_SIZE_MAX {
            wrong.push(format!("{file}: larger than {FILE_SIZE_MAX} bytes"));
            continue;
        }
        let verbatim = file.split('/').any(|folder| VERBATIM_FOLDERS.contains(&folder));
        let bytes = fs::read(&path).with_context(|| format!("cannot read {file}"))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if !verbatim {
            wrong.extend(violations(file, &text));
        }
    }
    if !wrong.is_empty() {
        bail!("{} violations of the style rules:\n  {}", wrong.len(), wrong.join("\n  "));
    }
    println!("{} files are tidy", files.len());
    Ok(())
}

/// Every file that is or would be committed.
fn files(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git ls-files failed: {said}");
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

fn violations(file: &str, text: &str) -> Vec<String> {
    let path = Path::new(file);
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let mut wrong = Vec::new();
    if EMPTY_NAMES.contains(&stem) {
        wrong.push(format!("{file}: `{stem}` says nothing: name the file after what is in it"));
    }
    if TEXT_EXTENSIONS.contains(&extension) || ["Makefile", "Dockerfile"].contains(&stem) {
        let tabs_allowed = stem == "Makefile";
        let width = WIDTH_EXTENSIONS.contains(&extension).then_some(LINE_CHARS_MAX);
        for (number, line) in (1..).zip(text.lines()) {
            let found = line_violations(line, tabs_allowed, width);
            wrong.extend(found.into_iter().map(|what| format!("{file}:{number}: {what}")));
        }
        if !text.is_empty() && !text.ends_with('\n') {
            wrong.push(format!("{file}: no line end at the end"));
        }
    }
    if extension == "rs" {
        rust_violations(file, text, &mut wrong);
    }
    wrong
}

fn line_violations(line: &str, tabs_allowed: bool, width: Option<usize>) -> Vec<String> {
    let mut wrong = Vec::new();
    if line.ends_with([' ', '\t', '\r']) {
        wrong.push("white space at the end".to_owned());
    }
    if !tabs_allowed && line.contains('\t') {
        wrong.push("a tab".to_owned());
    }
    let chars = line.chars().count();
    let unbreakable = line.split_whitespace().any(|word| word.chars().count() >= WORD_CHARS_MAX);
    if width.is_some_and(|max| chars > max) && !unbreakable && !line.contains("://") {
        wrong.push(format!("{chars} characters, more than {LINE_CHARS_MAX}"));
    }
    for marker in MARKERS.iter().filter(|marker| line.contains(**marker)) {
        wrong.push(format!("`{marker}`: finish it or put it into the tracker"));
    }
    for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
        wrong.push(format!("`{path}` exists on one machine only"));
    }
    wrong
}

fn rust_violations(file: &str, text: &str, wrong: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        wrong.push(format!("{file}: {lines} lines, more than {FILE_LINES_MAX}"));
    }
    let is_test = file.split('/').any(|folder| folder == "tests");
    let shipped = rust_text::without_tests(text);
    let code_lines = shipped.lines().count();
    if !is_test && code_lines > CODE_LINES_MAX {
        wrong.push(format!(
            "{file}: {code_lines} lines before its tests, more than {CODE_LINES_MAX}"
        ));
    }
    let code = rust_text::code_only(text);
    for (number, line) in (1..).zip(code.lines()) {
        for banned in BANNED_CODE.iter().filter(|banned| line.contains(**banned)) {
            wrong.push(format!("{file}:{number}: `{banned}` is banned"));
        }
        if file != UNSAFE_FILE && has_word(line, "unsafe") {
            wrong.push(format!("{file}:{number}: unsafe code outside {UNSAFE_FILE}"));
        }
    }
    if is_test {
        return;
    }
    for function in rust_text::functions(&rust_text::code_only(shipped)) {
        let rust_text::Function { name, line, body_lines } = function;
        if body_lines > FUNCTION_LINES_MAX {
            wrong.push(format!(
                "{file}:{line}: `{name}` has {body_lines} lines, more than {FUNCTION_LINES_MAX}"
            ));
        }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: &str, text: &str, expected: &[&str]) {
        let found = violations(file, text);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn lines() {
        check("a/src/b.rs", "fn f() {}\n", &[]);
        check("a.rs", "// a \n\tlet\n", &["a.rs:1: white space", "a.rs:2: a tab"]);
        check("a.rs", &format!("// {}\n", "x ".repeat(48) + "yy"), &["101 characters"]);
        check("a.rs", &format!("// https://a.b/{}\n", "x ".repeat(48) + "yy"), &[]);
        check("a.rs", &format!("// {}\n", "x".repeat(98)), &[]);
        check("a.md", &format!("{}\n", "x".repeat(101)), &[]);
        check("a.rs", "// a", &["no line end"]);
        check("Makefile", "a:\n\tb\n", &[]);
        check("a.bin", "\t ", &[]);
        check("a.rs", concat!("// TO", "DO: b\n"), &["finish it"]);
        check("a.md", concat!("cd /wo", "rk/x\n"), &["one machine"]);
    }

    #[test]
    fn code() {
        check("a.rs", concat!("db", "g!(1);\n"), &["banned"]);
        check("a.rs", concat!("// db", "g!(1);\n"), &[]);
        check("a.rs", concat!("#[ign", "ore = \"slow\"]\n"), &["banned"]);
        check("a.rs", "unsafe { f() }\n", &["unsafe code outside"]);
        check("a.rs", "let s = \"unsafe\"; // unsafe\n#![deny(unsafe_code)]\n", &[]);
        check(UNSAFE_FILE, "unsafe { f() }\n", &[]);
        check("a/src/utils.rs", "", &["says nothing"]);
    }

    #[test]
    fn sizes() {
        let body = |lines| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines));
        check("a.rs", &body(70), &[]);
        check("a.rs", &body(71), &["`f` has 71 lines"]);
        check("a/tests/a.rs", &body(71), &[]);
        check("a.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", body(71)), &[]);
        let lines = |count| "// a\n".repeat(count);
        check("a.rs", &lines(600), &[]);
        check("a.rs", &lines(601), &["601 lines before its tests"]);
        check("a.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(898)), &["901 lines"]);
    }
}
