//! Printing results, as tables or as JSON.

use std::io::Write;

use serde::Serialize;

use crate::error::RmqError;
use crate::table::{self, Align};

/// How results are printed: aligned columns for people, JSON for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// A result that is a row of a table, and an object in JSON.
pub(crate) trait Row: Serialize {
    /// Headings of the table.
    const COLUMNS: &'static [(&'static str, Align)];

    /// Cells of the table, one for each heading.
    fn cells(&self) -> Vec<String>;
}

/// Rows as text.
pub(crate) fn render<R: Row>(format: Format, rows: &[R]) -> String {
    match format {
        Format::Table => {
            let cells: Vec<_> = rows.iter().map(Row::cells).collect();
            table::layout(R::COLUMNS, &cells)
        }
        Format::Json => render_json(&rows),
    }
}

/// Anything as JSON, ending with a line break.
pub(crate) fn render_json<T: Serialize + ?Sized>(value: &T) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("our results have text as keys only");
    text.push('\n');
    text
}

/// Prints rows.
pub(crate) fn print_rows<R: Row>(format: Format, rows: &[R]) -> Result<(), RmqError> {
    print(&render(format, rows))
}

/// Prints text to standard output.
pub(crate) fn print(text: &str) -> Result<(), RmqError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// A count with a comma between thousands.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number or `-`.
pub(crate) fn or_dash<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let table = [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")];
        for (count, text) in table {
            assert_eq!(thousands(count), text);
        }
    }
}
