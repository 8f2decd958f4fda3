pub(crate) fn markdown(_: &super::BeyondArgs) -> anyhow::Result<String> {
    Ok(String::new())
}
