"""Looking at motions: figures and animations. Imported when first used; needs the extra `viz`."""
