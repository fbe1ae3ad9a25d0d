//! Just enough of Rust's lexical structure to see code without its comments and literals.

/// A function's name, the line (from 1) of its `fn` and how many lines of code its body has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) body_lines: usize,
}

/// `source` with every comment and the content of every string and character literal replaced by
/// blanks; line ends stay, so lines keep their numbers.
pub(crate) fn code_only(source: &str) -> String {
    let mut lexer = Lexer { rest: source, out: String::with_capacity(source.len()) };
    while !lexer.rest.is_empty() {
        lexer.next();
    }
    lexer.out
}

struct Lexer<'a> {
    rest: &'a str,
    out: String,
}

impl Lexer<'_> {
    fn next(&mut self) {
        let length = if self.rest.starts_with("//") {
            self.rest.find('\n').unwrap_or(self.rest.len())
        } else if self.rest.starts_with("/*") {
            block_comment_length(self.rest)
        } else if let Some(length) = self.literal_length() {
            length
        } else {
            let Some(first) = self.rest.chars().next() else { return };
            self.out.push(first);
            self.rest = &self.rest[first.len_utf8()..];
            return;
        };
        let (hidden, rest) = self.rest.split_at(length);
        self.out.extend(hidden.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }

    /// Bytes of the string or character literal that starts here, with its prefix.
    fn literal_length(&self) -> Option<usize> {
        let in_word = self.out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let prefix = if in_word { "" } else { literal_prefix(self.rest) };
        let after = &self.rest[prefix.len()..];
        if prefix.ends_with('r') {
            let hashes = after.len() - after.trim_start_matches('#').len();
            let body = after[hashes..].strip_prefix('"')?;
            let end = format!("\"{}", "#".repeat(hashes));
            let close = body.find(&end).map_or(body.len(), |at| at + end.len());
            return Some(prefix.len() + hashes + 1 + close);
        }
        if let Some(body) = after.strip_prefix('"') {
            return Some(prefix.len() + 1 + quoted_length(body, '"'));
        }
        let body = after.strip_prefix('\'')?;
        let mut chars = body.chars();
        let is_character = match chars.next()? {
            '\\' => true,
            _ => chars.next() == Some('\''),
        };
        // Otherwise it is a lifetime or a label.
        is_character.then(|| prefix.len() + 1 + quoted_length(body, '\''))
    }
}

fn literal_prefix(rest: &str) -> &'static str {
    let prefixes = ["br", "cr", "r", "b", "c"];
    let is_literal =
        |prefix: &&str| rest.strip_prefix(*prefix).is_some_and(|r| r.starts_with(['"', '\'', '#']));
    prefixes
        .into_iter()
        .find(|prefix| rest.starts_with(*prefix) && is_literal(prefix))
        .unwrap_or("")
}

/// Bytes up to and with the closing quote.
fn quoted_length(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if !escaped && c == quote {
            return at + 1;
        }
        escaped = !escaped && c == '\\';
    }
    body.len()
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(next) = text.get(at..) {
        if next.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if next.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            let Some(c) = next.chars().next() else { break };
            at += c.len_utf8();
        }
    }
    text.len()
}

/// The functions in a text that [`code_only`] has made. Blank lines (so also comments) of a body
/// do not count, as in clippy's `too_many_lines`.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let starts_word =
            !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '#');
        let name: String = code[at + 3..]
            .trim_start()
            .chars()
            .take_while(|&c| c.is_alphanumeric() || c == '_')
            .collect();
        if !starts_word || name.is_empty() {
            continue;
        }
        let Some(body) = body(&code[at..]) else { continue };
        let line = code[..at].matches('\n').count() + 1;
        let body_lines = body.lines().filter(|line| !line.trim().is_empty()).count();
        found.push(Function { name, line, body_lines });
    }
    found
}

/// What is between the braces of the function that starts here; `None` if it has no body.
fn body(code: &str) -> Option<&str> {
    let mut nesting = 0_usize;
    let mut start = None;
    for (at, c) in code.char_indices() {
        match c {
            ';' if nesting == 0 => return None,
            '{' | '(' | '[' => {
                if c == '{' && nesting == 0 {
                    start = Some(at + 1);
                }
                nesting += 1;
            }
            '}' | ')' | ']' => {
                nesting = nesting.checked_sub(1)?;
                if let Some(start) = start.filter(|_| nesting == 0) {
                    return code.get(start..at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The part of a file that is not its unit tests (which come last, by convention).
pub(crate) fn without_tests(source: &str) -> &str {
    let tests = source.match_indices("#[cfg(test)]\n").find(|(at, marker)| {
        let starts_line = *at == 0 || source[..*at].ends_with('\n');
        let next = source[at + marker.len()..].lines().next().unwrap_or_default();
        starts_line && next.contains("mod tests {")
    });
    tests.map_or(source, |(at, _)| &source[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_disappear() {
        for (source, expected) in [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d\n */ e", "a e"),
            (r#"f("{ \" //", x)"#, "f( , x)"),
            (r##"f(r#"{"}"#, 'a', '\'', '{')"##, "f( , , , )"),
            ("fn f<'a>(x: &'a str) { 'l: loop {} }", "fn f<'a>(x: &'a str) { 'l: loop {} }"),
            ("b'{' br\"{\" c\"{\" r#type bar\"x\"", "r#type bar"),
            ("\"\u{e9}\"", ""),
            ("'\u{e9}' \"unclosed", ""),
        ] {
            let code = code_only(source);
            assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{source}");
            assert_eq!(code.chars().count(), source.chars().count(), "{source}");
            assert_eq!(code.lines().count(), source.lines().count(), "{source}");
        }
    }

    #[test]
    fn function_lengths() {
        let source = "\
fn one() {}
trait T { fn none(&self); fn array(x: [u8; 3]) -> u8 { x[0] } }
pub async fn long(a: impl Fn() -> u8,
    b: u8) {

    // comment
    let x = || { \"}\" };
    fn inner() { 1 }
}
type F = fn (u8);
let s = \"fn text() {\";
";
        let found: Vec<_> = functions(&code_only(source))
            .iter()
            .map(|f| (f.name.clone(), f.line, f.body_lines))
            .collect();
        let expected = [("one", 1, 0), ("array", 2, 1), ("long", 3, 2), ("inner", 8, 1)];
        assert_eq!(found, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
    }

    #[test]
    fn tests_are_cut_off() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\nb\n}"), "a\n");
        assert_eq!(without_tests("a\n#[cfg(test)]\nfn f() {}\nb"), "a\n#[cfg(test)]\nfn f() {}\nb");
    }
}
