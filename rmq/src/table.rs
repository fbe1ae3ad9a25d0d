//! Aligned tables.

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Lays cells out under their headings, two blanks between columns. Ends with a line break unless
/// there are no columns.
pub(crate) fn layout(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |index: usize, heading: &str| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).fold(heading.chars().count(), usize::max)
    };
    let widths: Vec<usize> =
        columns.iter().enumerate().map(|(index, (heading, _))| width(index, heading)).collect();
    let headings = columns.iter().map(|(heading, _)| *heading).collect::<Vec<_>>();
    let mut text = String::new();
    push_line(&mut text, &headings, columns, &widths);
    for row in rows {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        push_line(&mut text, &cells, columns, &widths);
    }
    text
}

fn push_line(text: &mut String, cells: &[&str], columns: &[(&str, Align)], widths: &[usize]) {
    let mut line = String::new();
    for ((cell, (_, align)), width) in cells.iter().zip(columns).zip(widths) {
        let blanks = " ".repeat(width.saturating_sub(cell.chars().count()));
        match align {
            Align::Left => line.extend([cell, blanks.as_str(), "  "]),
            Align::Right => line.extend([blanks.as_str(), cell, "  "]),
        }
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must() {
        let columns = [("NAME", Align::Left), ("N", Align::Right), ("X", Align::Left)];
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = layout(&columns, &[row(["orders", "7", ""]), row(["é", "1000", "x"])]);
        assert_eq!(text, "NAME       N  X\norders     7\né       1000  x\n");
        assert_eq!(layout(&columns, &[]), "NAME  N  X\n");
    }
}
