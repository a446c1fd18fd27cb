//! Draws a Markdown table with aligned columns.

use anstyle::Style;
use petasos_platforms::markdown::{is_ruler, table_cells};

use super::inline::{Cell, cells, to_ansi};
use crate::print::{BOLD, DIM, styled};

/// `rows` start with `|`. Without a delimiter row below the header they are no table and are printed as they
/// are.
pub(super) fn draw(rows: &[String], out: &mut String) {
    let is_table = rows.get(1).is_some_and(|row| is_ruler(row));
    if !is_table {
        rows.iter().for_each(|row| super::push_line(out, row));
        return;
    }
    let body = rows.iter().enumerate().filter(|(at, _)| *at != 1);
    let drawn: Vec<Vec<Vec<Cell>>> = body
        .map(|(at, row)| {
            let style = if at == 0 { BOLD } else { Style::new() };
            table_cells(row).iter().map(|text| cells(text, style)).collect()
        })
        .collect();
    let columns = drawn.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |column: usize| drawn.iter().filter_map(|row| row.get(column)).map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (at, row) in drawn.iter().enumerate() {
        super::push_line(out, &line(row, &widths));
        if at == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            super::push_line(out, &styled(DIM, &rule.join("  ")));
        }
    }
}

fn line(row: &[Vec<Cell>], widths: &[usize]) -> String {
    let last = row.len().saturating_sub(1);
    let cell = |(at, cell): (usize, &Vec<Cell>)| {
        if at == last {
            return to_ansi(cell);
        }
        format!("{}{}", to_ansi(cell), " ".repeat(widths[at].saturating_sub(cell.len()) + 2))
    };
    row.iter().enumerate().map(cell).collect()
}
