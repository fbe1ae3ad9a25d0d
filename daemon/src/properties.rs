//! Java's `.properties` syntax, as `java.util.Properties.load` reads it.
//!
//! Comments start with `#` or `!`; a key ends at the first `=`, `:` or blank that no backslash
//! protects; a backslash at the end of a line continues it; `\t \n \r \f \uXXXX` are escapes and
//! any other escaped character stands for itself; white space after a value belongs to it.
//! Java reads bytes as ISO 8859-1. People write UTF-8, so bytes that are valid UTF-8 are taken as
//! such and only others as ISO 8859-1.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// One `key=value` of a properties text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: String,
    /// The line (from 1) on which the entry starts.
    pub line: usize,
}

/// The one thing that is malformed in a properties text: an escape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: malformed escape `{escape}`: `\\u` needs four hexadecimal digits")]
pub struct SyntaxError {
    /// The line (from 1) on which the wrong entry starts.
    pub line: usize,
    pub escape: String,
}

/// Entries in the order of the text, repeated keys included (the last one counts in Java).
/// All malformed lines are reported, not just the first.
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, Vec<SyntaxError>> {
    let text = decode(bytes);
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    for (line, logical) in logical_lines(&text) {
        match parse_entry(&logical) {
            Ok((key, value)) => entries.push(Entry { key, value, line }),
            Err(escape) => errors.push(SyntaxError { line, escape }),
        }
    }
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

/// `key=value` lines that [`parse`] reads back to the same entries.
pub fn print<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (key, value) in entries {
        escape_into(&mut text, key, true);
        text.push('=');
        escape_into(&mut text, value, false);
        text.push('\n');
    }
    text
}

fn decode(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    };
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Natural lines with their number; `\n`, `\r` and `\r\n` end a line.
fn natural_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = text;
    let mut number = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        number += 1;
        let Some(end) = rest.find(['\n', '\r']) else {
            return Some((number, std::mem::take(&mut rest)));
        };
        let (line, after) = rest.split_at(end);
        rest = after.strip_prefix("\r\n").or_else(|| after.get(1..)).unwrap_or_default();
        Some((number, line))
    })
}

/// Lines with continuations joined, without comments and blank lines.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, natural) in natural_lines(text) {
        let content = natural.trim_start_matches(is_blank);
        let (start, mut logical) = match open.take() {
            Some(open) => open,
            None if content.is_empty() || content.starts_with(['#', '!']) => continue,
            None => (number, String::new()),
        };
        let backslashes = content.chars().rev().take_while(|&c| c == '\\').count();
        if backslashes % 2 == 1 {
            logical.push_str(&content[..content.len() - 1]);
            open = Some((start, logical));
        } else {
            logical.push_str(content);
            lines.push((start, logical));
        }
    }
    lines.extend(open);
    lines
}

/// Splits and unescapes; the error is the malformed escape.
fn parse_entry(line: &str) -> Result<(String, String), String> {
    let mut chars = line.chars().peekable();
    let key = unescape(&mut chars, |c| is_blank(c) || c == '=' || c == ':')?;
    while chars.next_if(|&c| is_blank(c)).is_some() {}
    if chars.next_if(|&c| c == '=' || c == ':').is_some() {
        while chars.next_if(|&c| is_blank(c)).is_some() {}
    }
    let value = unescape(&mut chars, |_| false)?;
    Ok((key, value))
}

/// Reads up to (not including) the first unescaped character for which `ends` holds.
fn unescape(chars: &mut Peekable<Chars<'_>>, ends: fn(char) -> bool) -> Result<String, String> {
    // Java strings are UTF-16: two `\u` escapes may form one character.
    let mut units: Vec<u16> = Vec::new();
    while let Some(c) = chars.next_if(|&c| !ends(c)) {
        let unescaped = match c {
            '\\' => match chars.next() {
                Some('u') => {
                    units.push(hex_unit(chars)?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        units.extend_from_slice(unescaped.encode_utf16(&mut [0; 2]));
    }
    Ok(String::from_utf16_lossy(&units))
}

fn hex_unit(chars: &mut Peekable<Chars<'_>>) -> Result<u16, String> {
    let digits: String = chars.by_ref().take(4).collect();
    let wrong = || format!("\\u{digits}");
    if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    u16::from_str_radix(&digits, 16).map_err(|_| wrong())
}

fn escape_into(out: &mut String, text: &str, is_key: bool) {
    for (at, c) in text.chars().enumerate() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            '\\' => out.push_str("\\\\"),
            ' ' if is_key || at == 0 => out.push_str("\\ "),
            '=' | ':' | '#' | '!' if is_key => {
                out.push('\\');
                out.push(c);
            }
            // At the start of a text, U+FEFF would be read as a byte order mark.
            c if c.is_control() || c == '\u{feff}' => {
                // All of these are below U+FFFF: one UTF-16 unit.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &[u8]) -> Vec<(String, String, usize)> {
        let entries = parse(text).unwrap_or_else(|errors| panic!("{errors:?}"));
        entries.into_iter().map(|e| (e.key, e.value, e.line)).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str, usize)]) {
        let expected: Vec<_> =
            expected.iter().map(|(k, v, l)| ((*k).to_owned(), (*v).to_owned(), *l)).collect();
        assert_eq!(pairs(text.as_bytes()), expected, "{text:?}");
    }

    #[test]
    fn separators() {
        check("a=1", &[("a", "1", 1)]);
        check(
            "a = 1\nb:2\nc : 3\nd 4\ne\t=\t5",
            &[("a", "1", 1), ("b", "2", 2), ("c", "3", 3), ("d", "4", 4), ("e", "5", 5)],
        );
        check("a==1", &[("a", "=1", 1)]);
        check("a = = 1", &[("a", "= 1", 1)]);
        check("a", &[("a", "", 1)]);
        check("=1", &[("", "1", 1)]);
        check("a=1  ", &[("a", "1  ", 1)]);
        check("namesrvAddr=h1:9876;h2:9876", &[("namesrvAddr", "h1:9876;h2:9876", 1)]);
    }

    #[test]
    fn comments_and_blank_lines() {
        check(
            "# a=1\n  ! b=2\n\n \t\n  c=3\r\nd=4\re=5",
            &[("c", "3", 5), ("d", "4", 6), ("e", "5", 7)],
        );
        check("# no continuation \\\na=1", &[("a", "1", 2)]);
        check("a=1 # not a comment", &[("a", "1 # not a comment", 1)]);
        check("", &[]);
    }

    #[test]
    fn continuation() {
        check("a=1,\\\n    2,\\\n  3\nb=4", &[("a", "1,2,3", 1), ("b", "4", 4)]);
        check("a=1\\\\\nb=2", &[("a", "1\\", 1), ("b", "2", 2)]);
        check("a=1\\\n# 2", &[("a", "1# 2", 1)]);
        check("a=1\\\n\nb=2", &[("a", "1", 1), ("b", "2", 3)]);
        check("a=1\\", &[("a", "1", 1)]);
        check("a\\\n b=1", &[("ab", "1", 1)]);
    }

    #[test]
    fn escapes() {
        check(r"a\ b=1", &[("a b", "1", 1)]);
        check(r"a\=b\:c=1", &[("a=b:c", "1", 1)]);
        check(r"a=\t\n\r\f\\\q", &[("a", "\t\n\r\u{c}\\q", 1)]);
        check(r"a=\u0041\u00e9", &[("a", "A\u{e9}", 1)]);
        check(r"a=\ud83d\ude00", &[("a", "\u{1f600}", 1)]);
        check("a=\u{e9}", &[("a", "\u{e9}", 1)]);
        check("\u{feff}a=1", &[("a", "1", 1)]);
        assert_eq!(pairs(b"a=\xe9"), [("a".to_owned(), "\u{e9}".to_owned(), 1)]);
    }

    #[test]
    fn every_malformed_escape_is_reported() {
        let errors = parse(b"a=1\nb=\\u12\nc=\\\n\\uzzzz").unwrap_err();
        let lines: Vec<_> = errors.iter().map(|e| (e.line, e.escape.as_str())).collect();
        assert_eq!(lines, [(2, "\\u12"), (3, "\\uzzzz")]);
        assert_eq!(
            errors[0].to_string(),
            "line 2: malformed escape `\\u12`: `\\u` needs four hexadecimal digits"
        );
    }

    #[test]
    fn print_is_read_back() {
        let values = [
            "",
            " x ",
            "a=b:c",
            "C:\\store",
            "tab\tnl\ncr\r",
            "#!",
            "\u{1}\u{e9}\u{1f600}",
            "\u{feff}k",
        ];
        for text in values {
            let printed = print([(text, text)]);
            let entries = parse(printed.as_bytes()).expect("printed text is well formed");
            assert_eq!((entries[0].key.as_str(), entries[0].value.as_str()), (text, text));
        }
        assert_eq!(print([("namesrvAddr", "a:1;b:2")]), "namesrvAddr=a:1;b:2\n");
    }
}
