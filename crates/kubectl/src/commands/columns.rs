//! Columns side by side, as `kubectl get` has them.

use crate::doctor::harmless;

/// Options of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// Show more columns.
    pub wide: bool,
    /// Show the names of the columns.
    pub headers: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions { wide: false, headers: true }
    }
}

/// Lays out rows under a header row. `to_the_right` selects right-aligned columns; the last column is not
/// padded. Each row is one line, whatever its cells contain.
pub(super) fn columns<const N: usize>(
    rows: &[[String; N]],
    to_the_right: [bool; N],
    headers: bool,
) -> String {
    let rows = if headers { rows } else { rows.get(1..).unwrap_or_default() };
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| std::array::from_fn(|column| harmless(&row[column]))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column).unwrap_or_default();
            match to_the_right[column] {
                _ if column + 1 == N => cell.clone(),
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text += "\n";
    }
    text
}
