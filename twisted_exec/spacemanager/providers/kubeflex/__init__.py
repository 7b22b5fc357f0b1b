"""Provider ``kubeflex``: control planes of KubeFlex."""
