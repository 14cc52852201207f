"""Why a case is not faster: where its time goes, and causes that were taken away to see what it gains."""
