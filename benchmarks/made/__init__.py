"""Stores, tables, requests and captures that are made for measures."""
