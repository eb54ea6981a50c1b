//! Columns side by side, as `kubectl get` has them.

/// Lay out rows, the first of which is the head: a column to the right where it says so, the last one as
/// long as it is.
pub(super) fn columns<const N: usize>(rows: &[[String; N]], to_the_right: [bool; N]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut text = String::new();
    for row in rows {
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
